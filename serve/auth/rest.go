package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"clustermaster/value"
)

// Bounds of answers of a rest service.
const (
	maxRestReply = 1 << 20 // bytes
	maxRestDepth = 16
	restTime     = 10 * time.Second
)

// rest asks a network service. It POSTs username and password as a form. The service answers 200
// with null, or with a list of what the user may order in addition to external_auth.
type rest struct {
	url    string
	client *http.Client
}

func newRest(section value.Map, limit time.Duration) (*rest, error) {
	if limit <= 0 {
		limit = restTime
	}
	to := section.String("^url")
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("^url is missing, or does not begin with https://")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxConnsPerHost = 4, maxAtBackEnds
	transport.MaxResponseHeaderBytes = 64 << 10
	return &rest{url: to, client: &http.Client{
		Transport: transport, Timeout: limit,
		// Send a password only where the option says.
		CheckRedirect: func(*http.Request,
			[]*http.Request) error {
			return http.ErrUseLastResponse
		},
	}}, nil
}

func (r *rest) check(ctx context.Context, user, password string) (known, bool, error) {
	form := url.Values{"username": {user}, "password": {password}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, strings.NewReader(form))
	if err != nil {
		return known{}, false, fmt.Errorf("ask the service: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	reply, err := r.client.Do(req)
	if err != nil {
		var at *url.Error
		if errors.As(err, &at) { // its text has the address, which may contain secrets
			err = at.Err
		}
		return known{}, false, fmt.Errorf("ask the service: %w", err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(io.LimitReader(reply.Body, maxRestReply+1))
	switch {
	case reply.StatusCode != http.StatusOK:
		return known{}, false, nil
	case err != nil:
		return known{}, false, fmt.Errorf("read the service's reply: %w", err)
	case len(body) > maxRestReply:
		return known{}, false, fmt.Errorf("read the service's reply: more than %d bytes",
			maxRestReply)
	}
	if kind := reply.Header.Get("Content-Type"); kind != "" && !strings.Contains(kind, "json") {
		return known{}, false, fmt.Errorf("the service's reply is %q and not JSON", kind)
	}
	list, err := restList(body)
	if err != nil {
		return known{}, false, fmt.Errorf("read the service's reply: %w", err)
	}
	return known{list: list}, true, nil
}

// restList reads a list of what a user may order.
func restList(body []byte) ([]any, error) {
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		return nil, err
	}
	if v == nil {
		return nil, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, errors.New("neither a list nor null")
	}
	plain, err := wireValue(list, 0)
	if err != nil {
		return nil, err
	}
	return plain.([]any), nil
}

// wireValue turns encoding/json's values into wire values, maps sorted by key.
func wireValue(v any, depth int) (any, error) {
	if depth > maxRestDepth {
		return nil, fmt.Errorf("deeper than %d", maxRestDepth)
	}
	var err error
	switch v := v.(type) {
	case map[string]any:
		out := make(value.Map, 0, len(v))
		for k, x := range v {
			if x, err = wireValue(x, depth+1); err != nil {
				return nil, err
			}
			out = append(out, value.Pair{Key: k, Value: x})
		}
		slices.SortFunc(out, func(a, b value.Pair) int {
			return strings.Compare(a.Key.(string),
				b.Key.(string))
		})
		return out, nil
	case []any:
		for i := range v {
			if v[i], err = wireValue(v[i], depth+1); err != nil {
				return nil, err
			}
		}
		return v, nil
	}
	return v, nil
}
