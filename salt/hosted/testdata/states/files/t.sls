one: {cmd.run: [{name: exit 3}]}
two: {cmd.script: [{source: 'salt://script.sh'}]}
three: {cmd.run: [{name: exit 3 }, {stateful: [{test_name: echo tested}]}]}
five: {event.send: [{name: my/tag}, {data: {a: 1}}]}
six: {module.run: [{test.ping: []}, {nosuch.fun: []}]}
seven: {module.run: [{name: test.ping}]}
