virtual: {{ salt['named.kernel']() }} {{ salt.named.kernel() }}
