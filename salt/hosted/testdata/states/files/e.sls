one: {event.send: [{name: my/tag}, {data: {a: 1}}, {with_grains: [id]}]}
two: {event.fire_master: [{name: my/other}, {show_changed: False}]}
