package wire

import (
	"fmt"
	"time"
)

// Stamp writes t as events carry it in "_stamp": UTC with microseconds, such as
// 2026-11-21T09:32:30.576440+00:00.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000-07:00") }

// IsStamp reports whether s is a "_stamp" of any release: those before 3008 write no time zone.
func IsStamp(s string) bool {
	for _, form := range []string{"2006-01-02T15:04:05-07:00", "2006-01-02T15:04:05"} {
		if _, err := time.Parse(form, s); err == nil {
			return true
		}
	}
	return false
}

// jidDigits is the length of a job id without a suffix.
const jidDigits = 20

// JID makes a job id from a time: 20 digits, UTC, down to microseconds. Two calls within one
// microsecond give the same id; the caller (only Master.NewJID) must make ids unique.
func JID(t time.Time) string {
	b := t.UTC().AppendFormat(make([]byte, 0, jidDigits+1), "20060102150405.000000")
	return string(append(b[:14], b[15:]...))
}

// IsJID reports whether s looks like a job id: 20 digits, optionally followed by _ and a suffix.
func IsJID(s string) bool {
	if !jidLength(s) {
		return false
	}
	for i := range jidDigits {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

func jidLength(s string) bool {
	return len(s) == jidDigits || (len(s) > jidDigits+1 && s[jidDigits] == '_')
}

// ParseJID returns the time at the start of a job id, UTC; ok is false if jid is not one.
func ParseJID(jid string) (time.Time, bool) {
	if !IsJID(jid) {
		return time.Time{}, false
	}
	t, err := time.Parse("20060102150405.000000", jid[:14]+"."+jid[14:jidDigits])
	return t, err == nil
}

// JIDTime writes the time of a job id as Salt prints it, such as "2026, Nov 21 09:38:24.128016", or
// "" if jid is not one.
func JIDTime(jid string) string {
	if !IsJID(jid) {
		return ""
	}
	month := int(jid[4]-'0')*10 + int(jid[5]-'0')
	if month < 1 || month > 12 {
		return ""
	}
	return fmt.Sprintf("%s, %s %s %s:%s:%s.%s",
		jid[:4], time.Month(month).String()[:3], jid[6:8], jid[8:10], jid[10:12], jid[12:14],
		jid[14:20])
}
