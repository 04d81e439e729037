// Package patience scales the limits of tests: a limit is right for the machine that
// it was chosen on, and a test kernel in an emulator is ten to forty times slower.
package patience

import (
	"os"
	"strconv"
	"time"
)

// Env names the factor, a decimal number of at least 1. Package vm measures it.
const Env = "FAIRLEAD_PATIENCE"

// Of returns how long to wait here for what takes at most d on a usual machine.
func Of(d time.Duration) time.Duration {
	return time.Duration(float64(d) * factor())
}

// Pause returns how long to rest here between two looks, where d is right on a usual
// machine: longer on a slow one, which would else do little but look. It is never
// more than ten times as long.
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
