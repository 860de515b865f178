"""closedchannel.py ADDRESS FOLDER TRIES - closes a request channel of Salt's minion while a request
is under way, as a minion does whose connection to one of its masters has ended, and then collects
garbage. Prints "collected". A master at ADDRESS is not needed.
"""

import gc
import os
import sys

import salt.channel.client
import salt.config
import tornado.gen
import tornado.ioloop

address, folder, tries = sys.argv[1], sys.argv[2], int(sys.argv[3])
opts = dict(salt.config.DEFAULT_MINION_OPTS)
opts.update(
    id="closed",
    pki_dir=folder,
    master=address,
    master_ip=address,
    master_uri="tcp://%s:4506" % address,
    __role="minion",
)
loop = tornado.ioloop.IOLoop.current()


@tornado.gen.coroutine
def main():
    channel = salt.channel.client.AsyncReqChannel.factory(opts, crypt="clear", io_loop=loop)
    yield channel.connect()
    sent = channel.send({"cmd": "ping"}, tries=tries, timeout=2)
    yield tornado.gen.sleep(0.5)
    channel.close()
    try:
        yield sent
    except Exception as exc:  # it times out
        print("ended: %r" % exc, flush=True)
    del channel, sent
    yield tornado.gen.sleep(1)
    gc.collect()
    print("collected", flush=True)


loop.run_sync(main)
os._exit(0)  # what is left open must not hold up the end
