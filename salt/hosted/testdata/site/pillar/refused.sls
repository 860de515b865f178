refused: {{ salt['facts.refuse']('not for you') }}
