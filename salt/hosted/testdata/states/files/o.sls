dir:
  file.directory: [{name: ROOT/made}, {mode: '0750'}, {makedirs: True}]
text:
  file.managed:
    - name: ROOT/made/text
    - source: salt://text.j2
    - template: jinja
    - context: {word: hello}
    - mode: '0640'
    - require: [{file: dir}]
after text:
  cmd.wait: [{name: cat ROOT/made/text}, {watch: [{file: text}]}]
contents:
  file.managed: [{name: ROOT/made/contents}, {contents_pillar: word}, {makedirs: True}]
checked:
  file.managed: [{name: ROOT/made/checked}, {contents: wrong}, {check_cmd: grep right}]
no source:
  file.managed: [{name: ROOT/made/none}, {source: 'salt://none'}]
tree:
  file.recurse: [{name: ROOT/made/tree}, {source: 'salt://tree'}]
kept:
  file.managed: [{name: ROOT/made/clean/kept}, {contents: kept}, {makedirs: True}]
clean:
  file.directory: [{name: ROOT/made/clean}, {clean: True}, {require: [{file: kept}]}]
link:
  file.symlink: [{name: ROOT/made/link}, {target: ROOT/made/text}]
appended:
  file.append: [{name: ROOT/made/contents}, {text: [one, two]}, {require: [{file: contents}]}]
replaced:
  file.replace: [{name: ROOT/made/contents}, {pattern: two}, {repl: three}, {require: [{file: appended}]}]
serialized:
  file.serialize: [{name: ROOT/made/data}, {dataset: {a: [1, b]}}, {serializer: json}, {require: [{file: dir}]}]
block accumulated:
  file.accumulated: [{name: lines}, {filename: ROOT/made/block}, {text: [x, y]}, {require_in: [{file: block}]}]
block:
  file.blockreplace:
    - name: ROOT/made/block
    - marker_start: '# start'
    - marker_end: '# end'
    - append_if_not_found: True
    - require: [{file: block file}]
block file:
  file.managed: [{name: ROOT/made/block}, {contents: first}, {replace: False}]
gone:
  file.absent: [{name: ROOT/files/gone}]
no function:
  file.nosuch: []
no module:
  nosuch.function: []
elsewhere:
  system.hostname: []
before:
  cmd.run: [{name: echo before}, {prereq: [{own: two steps}]}]
two steps:
  own.changes: []
unneeded:
  own.changes: [{unless: 'true'}]
needed:
  own.changes: [{onlyif: [{fun: file.file_exists, path: /etc/passwd}]}]
created:
  own.changes: [{creates: /etc/passwd}]
follows:
  own.quiet: [{onchanges: [{own: needed}]}]
listens:
  own.quiet: [{listen: [{own: needed}]}]
rescues:
  own.quiet: [{onfail: [{own: raised}]}]
first:
  own.sees: [{name: a}, {shown: True}, {more: [1]}, {runas: nobody}]
second:
  own.sees: [{name: b}, {saltenv: other}]
watched:
  own.quiet: [{given: [c]}, {limit: 5}, {watch: [{own: needed}]}]
raised:
  own.raises: []
malformed:
  own.malformed: []
tuples:
  own.tuples: []
masks:
  own.masks: [{umask: '0027'}]
tries:
  own.tries: [{path: ROOT/tries}, {retry: {attempts: 4, interval: 1}}]
needs:
  own.needs: []
named:
  own.quiet: [{names: [n1, {n2: [{given: [x]}]}]}]
slots:
  own.quiet: [{given: '__slot__:salt:test.echo(slotted)'}]
further:
  further.found: []
environment:
  environ.setenv: [{name: CLUSTERMASTER_STATE}, {value: set}]
sees it:
  cmd.run: [{name: 'echo $CLUSTERMASTER_STATE'}]
last:
  own.sees: [{order: last}]
