about: {{ salt['facts.about']() | json }}
listed: {{ salt.facts.list(1, 'two', three=3) | json }}
util: {{ salt['facts.util'](21) }}
overridden: {{ salt['hashutil.md5_digest']('text') }}
native: {{ salt['hashutil.sha256_digest']('text') if 'hashutil.sha256_digest' in salt else 'gone with the file' }}
other: {{ salt['other.where']() }}
again: {{ [ salt['facts.again'](), salt['facts.again']() ] | json }}

salts_own: {{ salt['slsutil.merge']({'a': 1}, {'b': 2}) | json }}
there: {{ [ 'facts.about' in salt, 'facts.none' in salt ] | json }}
