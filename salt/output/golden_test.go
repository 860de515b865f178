package output

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"testing"

	"clustermaster/value"
)

// golden is golden.json, which testdata/golden.py makes with the outputters of Salt 3008.3.
type golden struct {
	Samples []struct {
		Name, Value string
		Cases       []struct {
			Outputter    string
			Opts         map[string]any
			Plain, Color string
		}
	}
}

func TestGolden(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(b, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Samples) < 50 {
		t.Fatalf("%d samples, want at least 50", len(g.Samples))
	}
	for _, s := range g.Samples {
		packed, err := base64.StdEncoding.DecodeString(s.Value)
		if err != nil {
			t.Fatal(err)
		}
		val, err := value.Unpack(packed)
		if err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		for _, c := range s.Cases {
			for _, color := range []bool{false, true} {
				o, retcode := options(t, c.Opts)
				o.Color = color
				want := c.Plain
				if color {
					want = c.Color
				}
				if got := o.Text(Result{Value: val, Outputter: c.Outputter,
					Retcode: retcode}); got != want {
					t.Errorf("%s as %s %v color=%v\n--- got\n%s\n--- want\n%s\n--- %q\n--- %q",
						s.Name, c.Outputter, c.Opts, color, got, want, got, want)
				}
			}
		}
	}
}

// options reads the Salt options of a case.
func options(t *testing.T, set map[string]any) (Options, int) {
	t.Helper()
	o, retcode := Defaults(), 0
	for key, v := range set {
		switch key {
		case "output_indent":
			o.Indent.Set = true
			if n, ok := v.(float64); ok {
				o.Indent.N = int(n)
			} else {
				o.Indent.Pretty = true
			}
		case "retcode":
			retcode = int(v.(float64))
		case "strip_colors":
			o.StripColors = v.(bool)
		case "state_output":
			o.StateOutput = v.(string)
		case "state_verbose":
			o.StateVerbose = v.(bool)
		case "state_output_diff":
			o.StateDiff = v.(bool)
		case "state_output_profile":
			o.StateProfile = v.(bool)
		case "state_output_pct":
			o.StatePercent = v.(bool)
		case "state_compress_ids":
			o.StateCompress = v.(bool)
		case "state_tabular":
			if s, ok := v.(string); ok {
				o.StateTabularAs = s
			} else {
				o.StateTabular = v.(bool)
			}
		case "state_output_exclude":
			o.StateExclude = []string{"True", "None"}
		case "state_output_terse":
			o.StateTerse = []string{"True"}
		default:
			t.Fatalf("unknown option %s", key)
		}
	}
	return o, retcode
}
