together 1:
  cmd.run: [{name: 'sleep 1; echo 1'}, {parallel: True}]
together 2:
  own.changes: [{parallel: True}, {require: [{cmd: together 1}]}]
