package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"clustermaster/serve/operator/operatorpb"
	"clustermaster/value"
)

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// textOrTexts unpacks a text, or a list of texts as []string.
func textOrTexts(b []byte) (any, error) {
	v, err := value.Unpack(b)
	if err != nil {
		return nil, err
	}
	switch x := v.(type) {
	case string:
		return x, nil
	case []any:
		out := make([]string, len(x))
		for i, e := range x {
			s, ok := e.(string)
			if !ok {
				return nil, fmt.Errorf("element %d is not text", i)
			}
			out[i] = s
		}
		return out, nil
	}
	return nil, errors.New("neither text nor a list of texts")
}

func list(b []byte) ([]any, error) {
	if len(b) == 0 {
		return nil, nil
	}
	v, err := value.Unpack(b)
	if err != nil {
		return nil, err
	}
	l, ok := v.([]any)
	if !ok {
		return nil, errors.New("not a list")
	}
	return l, nil
}

func mapping(b []byte) (value.Map, error) {
	if len(b) == 0 {
		return nil, nil
	}
	return value.UnpackMap(b)
}

func badValue(what string, err error) error {
	return status.Errorf(codes.InvalidArgument, "read %s: %v", what, err)
}

// asStatus carries an error's text to the command, which shows it to the operator.
func asStatus(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	}
	return status.Error(codes.FailedPrecondition, err.Error())
}

// fromStatus reverses asStatus.
func fromStatus(err error) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	switch st.Code() {
	case codes.Unavailable:
		return fmt.Errorf("%w: %s", ErrNoMaster, st.Message())
	case codes.Canceled:
		return context.Canceled
	case codes.Unauthenticated:
		return &RefusedError{st.Message()}
	case codes.ResourceExhausted:
		var n, most int
		if _, err := fmt.Sscanf(st.Message(), "grpc: received message larger than max (%d vs. %d)",
			&n, &most); err == nil && most < maxMessage { // the master refused it, not this end
			return fmt.Errorf("the request has %d bytes, this user's at most %d; send less at a time",
				n, most)
		}
	}
	return errors.New(st.Message())
}

func keysToPB(keys []Key) []*operatorpb.Key {
	out := make([]*operatorpb.Key, len(keys))
	for i, k := range keys {
		out[i] = &operatorpb.Key{Id: k.ID, State: k.State, Pub: k.Pub}
	}
	return out
}

func keysFromPB(keys []*operatorpb.Key) []Key {
	out := make([]Key, len(keys))
	for i, k := range keys {
		out[i] = Key{ID: k.Id, State: k.State, Pub: k.Pub}
	}
	return out
}
