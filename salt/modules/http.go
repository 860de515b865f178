package modules

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"clustermaster/value"
)

// Bounds of one http.query; the context of the render bounds it too.
const (
	maxBody     = 32 << 20 // bytes, unpacked
	httpTimeout = 30 * time.Second
	maxHops     = 5 // redirections
)

func httpFunctions() []function {
	return []function{{name: "http.query", params: []param{
		need("url"), opt("method", "GET"), opt("params", nil), opt("data", nil),
		opt("header_dict", nil), opt("header_list", nil), opt("username", nil),
		opt("password", nil), opt("auth", nil),
		opt("decode", false), opt("decode_type", "auto"), opt("status", false),
		opt("headers", false), opt("text", false), opt("verify_ssl", true), opt("ca_bundle", nil),
		opt("agent", nil),
		opt("raise_error", true), opt("decode_body", true), opt("backend", nil),
		opt("hide_fields", nil), opt("node", nil), opt("port", nil),
	}, run: query}}
}

// query is salt.utils.http.query with the parameters for one request and its answer.
func query(ctx context.Context, c *call) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, httpTimeout)
	defer cancel()
	req, err := c.request(ctx)
	if err != nil {
		return nil, err
	}
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return c.unreachable(err), nil
	}
	defer resp.Body.Close()
	body, err := readBody(resp)
	if err != nil {
		return nil, err
	}
	var shown any = body
	if c.is("decode_body") && utf8.Valid(body) {
		shown = string(body)
	}
	if resp.StatusCode >= 300 && c.is("raise_error") {
		return value.Map{
			{Key: "status", Value: int64(resp.StatusCode)},
			{Key: "error", Value: fmt.Sprintf("HTTP %d: %s", resp.StatusCode, reason(resp))},
			{Key: "body", Value: shown},
		}, nil
	}
	out := value.Map{{Key: "body", Value: shown}}
	if c.is("status") {
		out = append(out, value.Pair{Key: "status", Value: int64(resp.StatusCode)})
	}
	if c.is("headers") {
		h := value.Map{}
		for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
			h = append(h, value.Pair{Key: name, Value: strings.Join(resp.Header[name], ",")})
		}
		out = append(out, value.Pair{Key: "headers", Value: h})
	}
	asText := c.is("text")
	if c.is("decode") {
		kind := c.decodeType(resp.Header.Get("Content-Type"))
		switch kind {
		case "json", "yaml":
			if c.deps.Render == nil {
				return nil, errors.New("http.query can't decode answers here")
			}
			v, err := c.deps.Render(ctx, c.who, "", "\n"+string(body), kind, nil)
			if err != nil {
				return nil, fmt.Errorf("decode the answer of %s: %w", req.URL.Redacted(), err)
			}
			out = append(out, value.Pair{Key: "dict", Value: v})
		case "plain":
			asText = true
		case "xml":
			return nil, errors.New("decode_type xml is not built in; use json, yaml or plain")
		default:
			return append(out, value.Pair{Key: "error",
				Value: "Invalid decode_type specified. Valid decode types are: ('json', 'xml', 'yaml', 'plain')"}), nil
		}
	}
	if asText {
		out = append(out, value.Pair{Key: "text", Value: shown})
	}
	return out, nil
}

// decodeType returns the decoder for an answer: the argument, or else the answer's content type.
func (c *call) decodeType(contentType string) string {
	kind := c.text("decode_type")
	if kind != "auto" {
		return kind
	}
	for _, kind := range []string{"xml", "json", "yaml"} {
		if contentType == "" && kind == "json" || strings.Contains(contentType, kind) {
			return kind
		}
	}
	return "plain"
}

// reason is the text after the status.
func reason(resp *http.Response) string {
	_, text, _ := strings.Cut(resp.Status, " ")
	return text
}

// unreachable is the result if no answer came.
func (c *call) unreachable(err error) value.Map {
	out := value.Map{}
	if c.is("status") {
		out = append(out, value.Pair{Key: "status", Value: int64(0)})
	}
	said := err.Error()
	if no := syscall.Errno(0); errors.As(err, &no) {
		said = fmt.Sprintf("[Errno %d] %s%s", int(no), strings.ToUpper(no.Error()[:1]),
			no.Error()[1:])
	}
	return append(out, value.Pair{Key: "error", Value: said})
}

// request makes the request of a query.
func (c *call) request(ctx context.Context) (*http.Request, error) {
	target, err := url.Parse(c.text("url"))
	if err != nil || target.Scheme != "http" && target.Scheme != "https" {
		return nil, fmt.Errorf("url %q is not an http or https address", c.text("url"))
	}
	if params := form(c.dict("params")); params != "" {
		target.RawQuery = strings.Trim(target.RawQuery+"&"+params, "&")
	}
	var body io.Reader
	if v := c.any("data"); v != nil {
		data := raw(v)
		if m, ok := v.(value.Map); ok {
			data = []byte(form(m))
		}
		body = strings.NewReader(string(data))
	}
	req, err := http.NewRequestWithContext(ctx, c.text("method"), target.String(), body)
	if err != nil {
		return nil, err
	}
	if req.Method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, p := range c.dict("header_dict") {
		req.Header.Set(text(p.Key), text(p.Value))
	}
	for _, v := range c.list("header_list") {
		if name, val, ok := strings.Cut(text(v), ":"); ok {
			req.Header.Set(strings.TrimSpace(name), strings.TrimSpace(val))
		}
	}
	agent := c.text("agent")
	if agent == "" {
		agent = "Salt/" + c.deps.Version + " http.query()"
	}
	req.Header.Set("User-Agent", agent)
	user, password := c.text("username"), c.text("password")
	if pair := c.list("auth"); len(pair) == 2 {
		user, password = text(pair[0]), text(pair[1])
	}
	if user != "" && password != "" {
		req.SetBasicAuth(user, password)
	}
	return req, nil
}

// form encodes a map as a web form, in its order.
func form(m value.Map) string {
	var parts []string
	for _, p := range m {
		parts = append(parts, url.QueryEscape(text(p.Key))+"="+url.QueryEscape(text(p.Value)))
	}
	return strings.Join(parts, "&")
}

// client makes a client for one query, with the query's choice of trusted certificates.
func (c *call) client() (*http.Client, error) {
	trust := &tls.Config{InsecureSkipVerify: !c.is("verify_ssl")} // at the template's request
	if path := c.text("ca_bundle"); path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("ca_bundle: %w", err)
		}
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_bundle: no certificate in %s", path)
		}
	}
	return &http.Client{
		Transport: &http.Transport{TLSClientConfig: trust, DisableCompression: true,
			MaxResponseHeaderBytes: 1 << 20},
		CheckRedirect: func(_ *http.Request, via []*http.Request) error {
			if len(via) > maxHops {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}, nil
}

// readBody reads the whole body, unpacked, up to maxBody.
func readBody(resp *http.Response) ([]byte, error) {
	var r io.Reader = resp.Body
	if resp.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(resp.Body)
		if err != nil {
			return nil, fmt.Errorf("unpack the answer: %w", err)
		}
		r = unpacked
	}
	b, err := io.ReadAll(io.LimitReader(r, maxBody+1))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if len(b) > maxBody {
		return nil, fmt.Errorf("the answer is larger than %d bytes", maxBody)
	}
	return b, nil
}
