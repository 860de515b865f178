plain: {{ grains['id'] }}
