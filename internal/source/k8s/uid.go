package k8s

import (
	"encoding/hex"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// uid is an object's UID in 16 bytes. The API writes it as 36 characters.
type uid [16]byte

// uidOf parses a UID; zero if it has another form than the API server's.
func uidOf(t types.UID) (u uid) {
	digits := strings.ReplaceAll(string(t), "-", "")
	if len(digits) != 2*len(u) {
		return uid{}
	}
	if _, err := hex.Decode(u[:], []byte(digits)); err != nil {
		return uid{}
	}
	return u
}

func (u uid) text() types.UID {
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:]))
}
