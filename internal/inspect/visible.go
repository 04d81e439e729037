package inspect

import (
	"strconv"
	"strings"
	"unicode"
)

// Visible returns s with each character that cannot be printed escaped as in a Go string: a terminal executes control characters, and objects of
// other programs may contain some.
func Visible(s string) string {
	return escape(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// VisibleLines is Visible, except that it keeps line ends and tabs.
func VisibleLines(s string) string {
	return escape(s, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) })
}

func escape(s string, unprintable func(rune) bool) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if !strings.ContainsFunc(s, unprintable) {
		return s
	}
	var out strings.Builder
	for _, r := range s {
		if unprintable(r) {
			out.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}
