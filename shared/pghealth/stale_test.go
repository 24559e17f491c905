package pghealth

import (
	"net"
	"testing"
	"time"
)

// pair returns both ends of a connection.
func pair(t *testing.T) (here, there net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if here, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if there, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	return here, there
}

// pgconn may leave a reader behind, which must not block others.
func TestReadable_DoesNotWaitForAnotherReader(t *testing.T) {
	here, _ := pair(t)
	go func() { _, _ = here.Read(make([]byte, 1)) }()
	time.Sleep(20 * time.Millisecond) // the reader has probably started; if not, the test passes without showing it
	asked := make(chan bool, 1)
	go func() { asked <- readable(here) }()
	select {
	case is := <-asked:
		if is {
			t.Error("readable without data")
		}
	case <-time.After(5 * time.Second):
		t.Error("readable waited for the other reader")
	}
}

func TestReadable_DetectsClosedConnection(t *testing.T) {
	here, there := pair(t)
	if readable(here) {
		t.Error("readable without data")
	}
	_ = there.Close()
	for end := time.Now().Add(5 * time.Second); !readable(here); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a closed connection was not detected")
		}
	}
}
