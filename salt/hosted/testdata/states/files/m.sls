one: {module.run: [{test.echo: [{text: hello}]}]}
two: {module.run: [{name: test.echo}, {text: hello}]}
three: {module.run: [{nosuch.fun: [{a: 1}]}]}
four: {module.run: [{name: nosuch.fun}]}
five: {module.run: [{test.echo: []}]}
six: {module.run: [{name: test.echo}]}
seven: {module.run: [{test.ping: null}, {test.arg: [1, {a: 2}]}]}
eight: {module.run: [{name: file.file_exists}, {path: /nonexistent}]}
nine: {module.run: [{file.file_exists: [/nonexistent]}]}
ten: {module.run: [{name: test.arg}, {args: [1, 2]}, {kwargs: {a: 1}}]}
eleven: {module.run: [{test.nosuch: null}, {test.ping: null}]}
twelve: {module.wait: [{name: test.ping}]}
thirteen: {module.wait: [{name: test.ping}, {watch: [{test: changed}]}]}
fourteen: {module.run: [{config.get: [{bogus: 1}, {key: x}]}]}
fifteen: {module.run: []}
sixteen: {module.run: [{name: test.arg}, {args: 5}]}
changed: {test.succeed_with_changes: []}
pillar: {module.run: [{pillar.get: [word]}, {pillar.item: [nested]}]}
waits: {event.wait: [{name: my/tag}]}
