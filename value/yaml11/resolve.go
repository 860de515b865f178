package yaml11

import (
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// Tags of YAML's own repository in their short form.
const (
	tagNull  = "!!null"
	tagBool  = "!!bool"
	tagInt   = "!!int"
	tagFloat = "!!float"
	tagStr   = "!!str"
	tagTime  = "!!timestamp"
	tagMerge = "!!merge"
	tagValue = "!!value"
	tagYAML  = "!!yaml"
)

// The forms of YAML 1.1 (https://yaml.org/type/) as PyYAML's resolver has them.
var (
	intForm   = regexp.MustCompile(`^(?:[-+]?0b[01_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+)$`)
	floatForm = regexp.MustCompile(`^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$`)
	timeForm  = regexp.MustCompile(`^(?:[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::[0-9]{2})?))?)$`)
)

// resolve returns the tag of a plain scalar.
func resolve(s string) string {
	if s == "" {
		return tagNull
	}
	switch c := s[0]; c {
	case '~', 'n', 'N', 'y', 'Y', 't', 'T', 'f', 'F', 'o', 'O':
		switch s {
		case "~", "null", "Null", "NULL":
			return tagNull
		case "yes", "Yes", "YES", "no", "No", "NO", "true", "True", "TRUE", "false", "False",
			"FALSE", "on", "On", "ON", "off", "Off", "OFF":
			return tagBool
		}
	case '-', '+', '.', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		switch {
		case c != '.' && intForm.MatchString(s):
			return tagInt
		case floatForm.MatchString(s):
			return tagFloat
		case c >= '0' && timeForm.MatchString(s):
			return tagTime
		}
	case '<':
		if s == "<<" {
			return tagMerge
		}
	case '=':
		if s == "=" {
			return tagValue
		}
	case '!', '&', '*':
		if len(s) == 1 {
			return tagYAML
		}
	}
	return tagStr
}

func parseBool(s string) (any, error) {
	switch strings.ToLower(s) {
	case "yes", "true", "on":
		return true, nil
	case "no", "false", "off":
		return false, nil
	}
	return nil, fmt.Errorf("%q is not a bool", s)
}

func parseInt(s string) (any, error) {
	text := s
	if text != "0" && strings.HasPrefix(text, "0") && !strings.HasPrefix(text, "0b") &&
		!strings.HasPrefix(text, "0x") {
		if text = strings.TrimLeft(text, "0"); text == "" { // Salt's loader, see doc.go
			text = "0"
		}
	}
	text = strings.ReplaceAll(text, "_", "")
	digits, negative := strings.CutPrefix(text, "-")
	if !negative {
		digits = strings.TrimPrefix(digits, "+")
	}
	base := 10
	n := new(big.Int)
	switch {
	case len(digits) > maxDigits:
		return nil, fmt.Errorf("integer of %d digits is too long", len(digits))
	case strings.HasPrefix(digits, "0b"):
		digits, base = digits[2:], 2
	case strings.HasPrefix(digits, "0x"):
		digits, base = digits[2:], 16
	case strings.HasPrefix(digits, "0") && len(digits) > 1:
		base = 8
	case strings.Contains(digits, ":"):
		for part := range strings.SplitSeq(digits, ":") {
			d, ok := new(big.Int).SetString(part, 10)
			if !ok {
				return nil, fmt.Errorf("%q is not an integer", s)
			}
			n.Add(n.Mul(n, big.NewInt(60)), d)
		}
		digits = n.String()
	}
	if digits == "" || digits[0] == '-' || digits[0] == '+' {
		return nil, fmt.Errorf("%q is not an integer", s)
	}
	if _, ok := n.SetString(digits, base); !ok {
		return nil, fmt.Errorf("%q is not an integer", s)
	}
	if negative {
		n.Neg(n)
	}
	return integer(n), nil
}

// maxDigits bounds an integer; Python's own bound for decimal text is 4300.
const maxDigits = 4300

func parseFloat(s string) (any, error) {
	text := strings.ToLower(strings.ReplaceAll(s, "_", ""))
	digits, negative := strings.CutPrefix(text, "-")
	if !negative {
		digits = strings.TrimPrefix(digits, "+")
	}
	sign := 1.0
	if negative {
		sign = -1
	}
	switch {
	case digits == ".inf":
		return math.Inf(int(sign)), nil
	case digits == ".nan":
		return math.NaN(), nil
	case strings.Contains(digits, ":"):
		// From the right and in this order, so that the rounding is Python's.
		parts := strings.Split(digits, ":")
		value, base := 0.0, 1.0
		for i := len(parts) - 1; i >= 0; i-- {
			d, err := strconv.ParseFloat(parts[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%q is not a number", s)
			}
			value += d * base
			base *= 60
		}
		return sign * value, nil
	}
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil && !math.IsInf(f, 0) || strings.ContainsAny(digits, "xp") {
		return nil, fmt.Errorf("%q is not a number", s)
	}
	return sign * f, nil
}
