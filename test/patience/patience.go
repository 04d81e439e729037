// Package patience scales the time limits of tests. A limit is chosen on a usual machine,
// and a test kernel in an emulator is ten to forty times slower.
package patience

import (
	"os"
	"strconv"
	"time"
)

// Env names the variable with the factor, a decimal number of at least 1. Package vm
// measures it.
const Env = "FAIRLEAD_PATIENCE"

// Of returns the time limit on this machine for an operation that takes at most d on a
// usual one.
func Of(d time.Duration) time.Duration {
	return time.Duration(float64(d) * factor())
}

// Pause returns the interval between two polls on this machine, where d is right on a
// usual machine. It is longer on a slow one, which would otherwise spend most of its time
// on polls. It is never more than ten times as long.
func Pause(d time.Duration) time.Duration {
	return time.Duration(float64(d) * min(10, factor()))
}

func factor() float64 {
	factor, err := strconv.ParseFloat(os.Getenv(Env), 64)
	if err != nil || factor < 1 {
		return 1
	}
	return factor
}
