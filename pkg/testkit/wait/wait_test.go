package wait_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// failingTB is a test that records why it ended.
type failingTB struct {
	testing.TB
	message string
}

func (*failingTB) Helper() {}

func (f *failingTB) Fatalf(format string, arguments ...any) {
	f.message = fmt.Sprintf(format, arguments...)
}

func TestPollDelay(t *testing.T) {
	for _, after := range []time.Duration{0, time.Millisecond, 30 * time.Millisecond, time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			wait.Until(t, "the time has come", func() bool { return time.Since(began) >= after })
			if took := time.Since(began); took < after || took > after+after/10+time.Millisecond {
				t.Errorf("waiting for %s took %s", after, took)
			}
		})
	}
}

func TestTimeoutMessage(t *testing.T) {
	for want, waitFor := range map[string]func(testing.TB){
		"after 1s, not yet: the end":          func(t testing.TB) { wait.Within(t, time.Second, "the end", func() bool { return false }) },
		"after 2m0s, not yet: the end":        func(t testing.TB) { wait.Until(t, "the end", func() bool { return false }) },
		"after 2m0s, not yet: the end: never": func(t testing.TB) { wait.Success(t, "the end", func() error { return errors.New("never") }) },
		"after 2m0s, not yet: the channel":    func(t testing.TB) { wait.Receive(t, "the channel", make(chan int)) },
		"after 2m0s, not yet: the end (-want": func(t testing.TB) { wait.Equal(t, "the end", 1, func() int { return 2 }) },
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &failingTB{TB: t}
				if waitFor(f); !strings.HasPrefix(f.message, want) {
					t.Errorf("ended with %q", f.message)
				}
			})
		})
	}
}

func TestLastPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		wait.Within(t, time.Minute, "the last moment", func() bool { return time.Since(began) >= time.Minute })
		wait.Success(t, "a success", func() error { return nil })
		wait.Equal(t, "the same", []string{"a"}, func() []string { return []string{"a"} })
		late := make(chan int)
		go func() { time.Sleep(time.Minute); late <- 7 }()
		if got := wait.Receive(t, "a number", late); got != 7 {
			t.Errorf("received %d, want 7", got)
		}
	})
}
