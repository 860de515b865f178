package minion

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"
)

// frames is one publication as sent: frames that are encoded once and shared by all subscribers.
type frames struct {
	topic   string // without filtering: ""
	head    []byte // topic frame, if any, and the header of the payload frame
	payload []byte
}

// edition is all copies of one publication.
type edition struct {
	topics []string // sorted; nil without filtering
	copies []frames // one per topic; just one without filtering
}

func newEdition(topics []string, payload []byte, filtering bool) *edition {
	if !filtering {
		return &edition{copies: []frames{{head: appendHeader(nil, 0, len(payload)),
			payload: payload}}}
	}
	e := &edition{topics: slices.Clone(topics)}
	slices.Sort(e.topics)
	e.topics = slices.Compact(e.topics)
	e.copies = make([]frames, len(e.topics))
	for i, t := range e.topics {
		head := appendHeader(make([]byte, 0, len(t)+18), flagMore, len(t))
		head = appendHeader(append(head, t...), 0, len(payload))
		e.copies[i] = frames{topic: t, head: head, payload: payload}
	}
	return e
}

// matching returns the copies whose first frame starts with one of the prefixes. None of these is a
// prefix of another.
func (e *edition) matching(prefixes []string) []frames {
	if e.topics == nil {
		for _, p := range prefixes {
			if len(p) <= len(e.copies[0].payload) && p == string(e.copies[0].payload[:len(p)]) {
				return e.copies
			}
		}
		return nil
	}
	var found []frames
	for _, p := range prefixes {
		from := sort.SearchStrings(e.topics, p)
		to := from
		for to < len(e.topics) && strings.HasPrefix(e.topics[to], p) {
			to++
		}
		if found == nil {
			found = e.copies[from:to:to]
		} else {
			found = append(found, e.copies[from:to]...)
		}
	}
	return found
}

// subscriber is a connection with its subscriptions and its queue.
type subscriber struct {
	*link
	server   *PubServer
	topics   []string // only the reader uses it
	prefixes []string // under PubServer.mu, as the next two: the topics that no other topic covers

	since     time.Time // of its first subscription
	longLived bool      // it counts in PubServer.longLived

	mu     sync.Mutex // after PubServer.mu; guards queue, taken, busy
	queue  []frames
	taken  int            // copies being written; they count for the bound
	busy   bool           // a writer runs, or ended with an error in failed
	writer sync.WaitGroup // the writer
	failed error          // of the writer
}

func newSubscriber(l *link, server *PubServer) *subscriber {
	return &subscriber{link: l, server: server}
}

// put queues copies while the bound allows and returns how many it queued: it drops the newest, as
// PUB does. A writer runs as long as the queue has copies.
func (s *subscriber) put(copies []frames, hwm int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(copies), max(0, hwm-len(s.queue)-s.taken))
	if n == 0 {
		return 0
	}
	s.queue = append(s.queue, copies[:n]...)
	if !s.busy {
		s.busy = true
		s.writer.Add(1)
		go s.drain()
	}
	return n
}

// drain writes until the queue is empty.
func (s *subscriber) drain() {
	defer s.writer.Done()
	var batch []frames
	for {
		batch = s.take(batch)
		if len(batch) == 0 {
			return
		}
		bufs := make([][]byte, 0, 2*len(batch))
		size := 0
		for _, f := range batch {
			bufs = append(bufs, f.head, f.payload)
			size += len(f.payload)
		}
		if s.failed = s.send(bufs...); s.failed != nil {
			s.conn.Close() // the reader may be waiting for long
			return
		}
		met := s.server.met
		met.sent.Add(float64(size))
		met.copies.WithLabelValues("sent").Add(float64(len(batch)))
	}
}

func (s *subscriber) writing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy
}

// take returns the next copies to write, up to maxWriteMessages, and forgets those of its last
// call. If it returns none the writer must end.
func (s *subscriber) take(into []frames) []frames {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.queue), maxWriteMessages)
	into = append(into[:0], s.queue[:n]...)
	if n == len(s.queue) {
		s.queue = nil // an idle subscriber costs no queue
	} else {
		clear(s.queue[:n])
		s.queue = s.queue[n:]
	}
	s.taken = n
	s.busy = n > 0
	return into
}

// setTopic adds or removes one subscription and returns the resulting prefixes, without topics that
// another one covers. Only the reader of s calls it.
func (s *subscriber) setTopic(topic string, on bool) (prefixes []string, err error) {
	s.topics = slices.DeleteFunc(s.topics, func(t string) bool { return t == topic })
	if on {
		s.topics = append(s.topics, topic)
		if len(s.topics) > maxTopics {
			return nil, fmt.Errorf("more than %d subscriptions: %w", maxTopics, ErrTooLarge)
		}
	}
	for _, t := range s.topics {
		covered := false
		for _, u := range s.topics {
			covered = covered || u != t && strings.HasPrefix(t, u)
		}
		if !covered {
			prefixes = append(prefixes, t)
		}
	}
	slices.Sort(prefixes)
	return prefixes, nil
}

// next handles one subscription, its end, or a command.
func (s *subscriber) next(context.Context) error {
	topic, on, is, err := s.subscription()
	if err != nil || !is {
		return err
	}
	return s.server.subscribe(s, topic, on)
}

// end waits for the writer: a stopping endpoint writes the queued copies.
func (s *subscriber) end(err error) error {
	s.server.leave(s)
	if !s.server.stopping.Load() {
		s.conn.Close() // wakes a writer whose peer doesn't read
	}
	s.writer.Wait()
	if s.failed != nil {
		return s.failed
	}
	return err
}

// subscription reads one frame that a SUB socket may send. on and topic are set if it is a
// subscription or its end; it answers other commands itself.
func (s *subscriber) subscription() (topic string, on, is bool, err error) {
	flags, err := s.r.ReadByte()
	if err != nil {
		return "", false, false, err
	}
	h, err := readHeader(s.r, flags, 1+maxTopic)
	if err != nil {
		return "", false, false, err
	}
	body, err := readBody(&patient{l: s.link, e: s.server.endpoint}, h.size, nil)
	if err != nil {
		return "", false, false, err
	}
	if h.command {
		name, data, err := splitCommand(body)
		if err != nil {
			return "", false, false, err
		}
		if name != cmdSubscribe && name != cmdCancel {
			return "", false, false, s.command(name, data)
		}
		if len(data) > maxTopic {
			return "", false, false, fmt.Errorf("topic of %d bytes: %w", len(data), ErrTooLarge)
		}
		return string(data), name == cmdSubscribe, true, nil
	}
	if h.more || len(body) == 0 || body[0] > 1 {
		return "", false, false, fmt.Errorf("%s from a subscriber: %w",
			bytes.TrimSpace(body[:min(len(body), 16)]), ErrUnexpected)
	}
	return string(body[1:]), body[0] == 1, true, nil
}

// added returns the copies that match only since the prefixes changed.
func (e *edition) added(before, after []string) []frames {
	now := e.matching(after)
	if len(now) == 0 || len(before) == 0 {
		return now
	}
	if e.topics == nil {
		if len(e.matching(before)) > 0 {
			return nil
		}
		return now
	}
	var fresh []frames
	for _, f := range now {
		if !slices.ContainsFunc(before, func(p string) bool {
			return strings.HasPrefix(f.topic,
				p)
		}) {
			fresh = append(fresh, f)
		}
	}
	return fresh
}
