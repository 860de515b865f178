one: {cmd.run: [{name: 'echo out; echo err >&2'}]}
two: {cmd.run: [{name: exit 3}]}
three: {cmd.run: [{name: sleep 3}, {timeout: 1}]}
four: {cmd.run: [{name: sleep 3}, {timeout: 1}, {ignore_timeout: True}]}
five: {cmd.run: [{name: echo changed=yes comment=hello a=b}, {stateful: True}]}
six: {cmd.run: [{name: "echo '{\"changed\": true, \"comment\": \"js\", \"x\": [1, 2.5, null]}'"}, {stateful: True}]}
seven: {cmd.run: [{name: echo nonsense here}, {stateful: True}]}
eight: {cmd.run: [{name: 'true'}, {cwd: /nonexistent}]}
nine: {cmd.run: [{name: 'true'}, {env: text}]}
ten: {cmd.run: [{name: 'echo $X'}, {env: [{X: 12}]}]}
eleven: {cmd.run: [{name: 'true '}, {creates: /etc/passwd}]}
twelve: {cmd.run: [{name: exit 4}, {success_retcodes: [4]}]}
thirteen: {cmd.run: [{name: echo hidden}, {hide_output: True}]}
fourteen: {cmd.run: [{name: echo done; exit 5}, {success_stdout: [done]}]}
fifteen: {cmd.run: [{name: 'true  '}, {runas: nosuchuser}]}
sixteen: {cmd.run: [{name: "echo one; echo changed=no comment='still the same'"}, {stateful: True}]}
seventeen: {cmd.run: [{name: "echo one; echo changed=1 n=2"}, {stateful: True}]}
eighteen: {cmd.run: [{name: pwd}, {cwd: /usr}]}
