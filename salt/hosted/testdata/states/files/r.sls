grain:
  file.managed: [{name: ROOT/made/grain}, {contents: something}, {makedirs: True}, {reload_grains: True}]
sees grain:
  own.grain: [{name: found}]
module:
  file.managed:
    - name: ROOT/ext/states/late.py
    - contents: "def comes(name):\n    return {'name': name, 'result': True, 'changes': {}, 'comment': 'late'}"
sees module:
  late.comes: []
