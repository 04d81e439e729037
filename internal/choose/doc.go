// Package choose is the one rule by which a mode is chosen. `fairlead probe` shows what
// it says and `--proxy-mode auto` takes it. It touches nothing: app tries the modes and
// says what came of it.
package choose
