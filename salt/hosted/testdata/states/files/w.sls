one: {cmd.wait: [{name: 'true'}]}
two: {cmd.wait: [{name: echo watched}, {watch: [{test: changed}]}]}
three: {cmd.run: [{name: echo again}, {watch: [{test: changed}]}]}
changed: {test.succeed_with_changes: []}
