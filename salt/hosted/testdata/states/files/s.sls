one: {cmd.script: [{source: 'salt://script.sh'}, {args: x 'y z'}]}
two: {cmd.script: [{name: 'salt://nosuch.sh'}]}
three: {cmd.script: [{source: 'salt://script.sh'}, {args: a}, {template: jinja}, {context: {word: ctx}}, {defaults: {word: d}}]}
four: {cmd.script: [{source: 'salt://script.sh'}, {context: text}]}
five: {cmd.script: [{source: 'salt://script.sh'}, {cwd: /nonexistent}]}
