package await

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestPoll_ReturnsAtFirstSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		NoError(t, func() error {
			if time.Since(began) < 200*time.Millisecond {
				return errors.New("early")
			}
			return nil
		})
		if took := time.Since(began); took > 200*time.Millisecond+longestPause {
			t.Errorf("noticed after %s", took)
		}
	})
}

func TestPoll_ReturnsLastErrorAfterLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, last := time.Now(), errors.New("refused")
		if err := poll(time.Second, func() error { return last }); !errors.Is(err, last) {
			t.Errorf("%v, want the last error", err)
		}
		if took := time.Since(began); took < time.Second || took > time.Second+longestPause {
			t.Errorf("gave up after %s", took)
		}
	})
}
