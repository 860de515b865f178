unknown: {{ salt['facts.none']() }}
