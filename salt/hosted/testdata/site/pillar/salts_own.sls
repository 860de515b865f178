without_go:
  there: {{ ["network.is_private" in salt, "file.user_to_uid" in salt, "random.none" in salt] | json }}
  in_subnet: {{ salt['network.ip_in_subnet']('10.1.2.3', '10.1.0.0/16') }}
  not_in: {{ salt['network.ip_in_subnet']('10.2.2.3', '10.1.0.0/16') }}
  hostbits: {{ salt['network.ip_in_subnet']('10.1.2.3', '10.1.2.3/16') }}
  public: {{ salt['network.is_private']('8.8.8.8') }}
  reverse6: {{ salt['network.reverse_ip']('2001:db8::1') }}
  private: {{ salt['network.is_private']('10.1.2.3') }}
  loop: {{ salt['network.is_loopback']('127.0.0.1') }}
  calc: {{ salt['network.calc_net']('10.1.2.3', '255.255.255.0') }}
  calc6: {{ salt['network.calc_net']('10.1.2.3/20') }}
  reverse: {{ salt['network.reverse_ip']('10.1.2.3') }}
  hex: {{ salt['network.convert_cidr']('10.1.2.0/24') | json }}
  seed: {{ salt['random.seed'](60, hash='x') }}
  seed_id: {{ salt['random.seed'](1440) }}
  seed_many:
{%- for i in range(4) %}
    - {{ salt['random.seed'](1000 + i * 77777, hash='minion' ~ i) }}
{%- endfor %}
  rand: {{ salt['random.rand_int'](1, 1000000, seed='abc') }}
  rand_int: {{ salt['random.rand_int'](5, 500, seed=42) }}
  rhash: {{ salt['random.hash']('I am a string', algorithm='sha256') }}
  encode: {{ salt['random.str_encode']('I am a new string') }}
  str: {{ salt['random.get_str'](12, punctuation=False) | length }}
  banner: {{ salt['slsutil.banner'](40, title='A title') | json }}
  uid: {{ salt.file.user_to_uid('root') }}
  group: {{ salt['group.info']('me', 'ROOT/files') | json }}
