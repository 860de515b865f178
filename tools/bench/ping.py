# ping.py CONFIG TARGET TYPE TIMEOUT: a test.ping through Salt's own client. It prints how many minions
# answered, and the seconds from the publication to the last answer.
import json, sys, time
import salt.client
client = salt.client.LocalClient(sys.argv[1])
start = last = time.time()
ids = set()
for answer in client.cmd_iter(sys.argv[2], "test.ping", tgt_type=sys.argv[3], timeout=float(sys.argv[4])):
    for minion, value in answer.items():
        if value.get("ret") is True:
            ids.add(minion)
            last = time.time()
json.dump([len(ids), last - start], sys.stdout)
