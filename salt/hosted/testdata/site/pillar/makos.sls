#!mako|yaml
mako:
  id: ${grains['id']}
  fact: ${salt['facts.about']()['os']}
