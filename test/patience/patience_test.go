package patience

import (
	"testing"
	"time"
)

func TestOf(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": time.Second, "1": time.Second, "0.1": time.Second, "-3": time.Second, "slow": time.Second,
		"2.5": 2500 * time.Millisecond, "40": 40 * time.Second,
	} {
		t.Setenv(Env, text)
		if got := Of(time.Second); got != want {
			t.Errorf("%s=%q: a second becomes %v, want %v", Env, text, got, want)
		}
		if got, want := Pause(time.Second), min(want, 10*time.Second); got != want {
			t.Errorf("%s=%q: a pause of a second becomes %v, want %v", Env, text, got, want)
		}
	}
}
