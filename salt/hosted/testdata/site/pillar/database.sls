database: {{ salt['facts.about']()['id'] }}
