fails: {{ salt['facts.fail']('no luck') }}
