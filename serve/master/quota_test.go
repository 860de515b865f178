package master

import (
	"errors"
	"fmt"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"clustermaster/store/allotment"
)

func TestQuota(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	q := newQuota(100, time.Hour)
	for _, step := range []struct {
		id    string
		n     int64
		after time.Duration
		want  bool
	}{
		{"a", 60, 0, true}, {"a", 50, 0, false}, {"b", 100, 0, true}, {"a", 40, 0, true},
		{"a", 1, 0, false}, {"a", 1, time.Minute, true}, {"a", 1, 0, false},
		{"a", 100, time.Hour, true}, {"c", 101, 0, false},
	} {
		now = now.Add(step.after)
		if got := q.take(step.id, step.n, now); got != step.want {
			t.Errorf("%+v: %v", step, got)
		}
	}
	if !newQuota(0, time.Hour).take("a", 1<<40, now) {
		t.Error("no quota refuses")
	}
	for i := range maxQuotas + 10 {
		q.take(fmt.Sprint(i), 1, now)
	}
	if len(q.used) > maxQuotas {
		t.Errorf("%d minions are remembered", len(q.used))
	}
}

// TestQuotas: a minion that brings too much is refused, others are not, and what is refused is not
// kept.
func TestQuotas(t *testing.T) {
	t.Parallel()
	pushed := &pushes{}
	k := newKit(t, func(o *Options, d *Deps) {
		o.JobsPerHour, o.FileRecv, o.FileRecvPerDay, o.FileRecvMaxSize, d.Pushed = 3, true, 10, 100,
			pushed
		d.Pillars = pillars{}
	})
	m, other := k.accept("m1"), k.accept("m2")
	job := func(m *fakeMinion, jid string) any {
		return m.call(dict("cmd", "_return", "jid", jid, "fun", "test.ping", "return", true))
	}
	// A clock that was ahead and is right again takes nothing away.
	ahead := 26 * time.Hour
	k.now = func() time.Time { ahead = -ahead; return time.Now().Add(-ahead) }
	for i, jid := range []string{"req", "20200101000000000001", "req"} {
		if got := job(m, jid); got != nil {
			t.Errorf("job %d: %v", i, got)
		}
	}
	for _, jid := range []string{"req", "20200101000000000002"} {
		if got := job(m, jid); got != false {
			t.Errorf("one more %s: %v", jid, got)
		}
	}
	if job(m, "20200101000000000001") != nil || job(other, "req") != nil {
		t.Error("a known job, or another minion's, is refused")
	}
	if len(k.jobs.loads) != 4 {
		t.Errorf("kept %v", k.jobs.loads)
	}
	push := func(m *fakeMinion, data string) any {
		return m.call(dict("cmd", "_file_recv", "path", []any{"x"}, "loc", int64(0), "data",
			[]byte(data), "size", int64(len(data))))
	}
	if push(m, "0123456") != true || push(m, "0123456") != false || push(m, "0") != true ||
		push(other, "0123456") != true {
		t.Error("pushed files")
	}
	for _, full := range []error{allotment.ErrOne, allotment.ErrAll} {
		k.jobs.err, pushed.err = fmt.Errorf("full: %w", full), fmt.Errorf("full: %w", full)
		if got := job(k.accept("m3"), "req"); got != false {
			t.Errorf("a job, %v: %v", full, got)
		}
		if got := push(other, "0"); got != false {
			t.Errorf("a file, %v: %v", full, got)
		}
	}
	k.jobs.err = nil
	for _, reason := range []string{"quota_jobs_stored", "quota_jobs_total", "quota_files_stored",
		"quota_files_total"} {
		var counted dto.Metric
		if err := k.metrics.refused.WithLabelValues(reason).Write(&counted); err != nil ||
			counted.Counter.GetValue() != 1 {
			t.Errorf("%s: counted %v times, %v", reason, counted.Counter.GetValue(), err)
		}
	}
	k.data.err = fmt.Errorf("full: %w", allotment.ErrQuota)
	if got := m.call(dict("cmd", "_mine", "data", dict("a", true))); got != false {
		t.Errorf("mine: %v", got)
	}
	k.data.err = errors.New("other")
}
