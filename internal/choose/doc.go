// Package choose is the one rule by which a mode is chosen. `fairlead probe` shows its
// result and `--proxy-mode auto` uses it. It changes nothing: app tries the modes and
// reports the results.
package choose
