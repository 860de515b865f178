package checkup

import (
	"context"
	"encoding/json"
)

// JSON are the reports of the masters with these ids, or this one's, as JSON.
func (x *Exchange) JSON(ctx context.Context, nonce string, ids []string) (string, []string, error) {
	var list []Report
	var missing []string
	if len(ids) == 0 {
		list = append(list, x.Report(ctx, nonce))
	} else {
		var err error
		if list, missing, err = x.Ask(ctx, nonce, ids); err != nil {
			return "", nil, err
		}
	}
	b, err := json.Marshal(list)
	return string(b), missing, err
}
