package checkup

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"clustermaster/config"
	"clustermaster/serve/event"
	"clustermaster/value"
)

// Tags of the exchange. The nonce of a question follows.
const (
	askTag    = "salt/cluster/doctor/ask/"
	answerTag = "salt/cluster/doctor/answer/"
)

// Exchange asks the masters of a cluster for their reports and gives this master's. Make one per
// process and Run it.
type Exchange struct {
	Options *config.Options
	Release string
	Bus     *event.Bus
	Mesh    *event.Mesh
}

// reportTime bounds the making of one report.
const reportTime = 20 * time.Second

// Report is this master's.
func (x *Exchange) Report(ctx context.Context, nonce string) Report {
	ctx, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
	return Report{
		Master: x.Options.ID, Release: x.Release, Findings: Local(ctx, x.Options, true),
		Options: Digests(x.Options, nonce), Roots: Roots(ctx, x.Options),
	}
}

// Run answers questions until ctx ends, one at a time.
func (x *Exchange) Run(ctx context.Context) error {
	sub := x.Mesh.Follow(askTag)
	defer sub.Close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-sub.C:
			if !ok {
				return nil
			}
			nonce := e.Tag[len(askTag):]
			b, err := json.Marshal(x.Report(ctx, nonce))
			if err == nil && ctx.Err() == nil {
				x.Bus.Fire(answerTag+nonce, value.Map{{Key: "report", Value: string(b)}})
			}
		}
	}
}

// Ask collects the reports of the masters with these ids, this one's among them, and tells who did
// not answer in time.
func (x *Exchange) Ask(ctx context.Context, nonce string, ids []string) (reports []Report,
	missing []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, reportTime+5*time.Second)
	defer cancel()
	sub, err := x.Mesh.Subscribe(ctx, answerTag+nonce)
	if err != nil {
		return nil, nil, err
	}
	defer sub.Close()
	missing = slices.Clone(ids)
	x.Bus.Fire(askTag+nonce, value.Map{{Key: "id", Value: x.Options.ID}})
	for len(missing) > 0 {
		select {
		case <-ctx.Done():
			return reports, missing, nil
		case e, ok := <-sub.C:
			if !ok {
				return reports, missing, nil
			}
			var r Report
			data, err := e.Map()
			if err != nil || json.Unmarshal([]byte(data.String("report")), &r) != nil {
				continue
			}
			if i := slices.Index(missing, r.Master); i >= 0 {
				missing = slices.Delete(missing, i, i+1)
				reports = append(reports, r)
			}
		}
	}
	return reports, missing, nil
}
