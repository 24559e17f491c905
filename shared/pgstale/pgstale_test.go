package pgstale

import (
	"net"
	"testing"
	"time"
)

// pair is a connection and its other end.
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

// pgconn may leave a reader behind: nobody may wait for it.
func TestReadable_DoesNotWaitForAnotherReader(t *testing.T) {
	here, _ := pair(t)
	go func() { _, _ = here.Read(make([]byte, 1)) }()
	time.Sleep(20 * time.Millisecond) // by now it reads; earlier, the test shows less and passes
	asked := make(chan bool, 1)
	go func() { asked <- readable(here) }()
	select {
	case is := <-asked:
		if is {
			t.Error("there is nothing to read")
		}
	case <-time.After(5 * time.Second):
		t.Error("it waits for the other reader")
	}
}

func TestReadable_SeesTheEnd(t *testing.T) {
	here, there := pair(t)
	if readable(here) {
		t.Error("there is nothing to read")
	}
	_ = there.Close()
	for end := time.Now().Add(5 * time.Second); !readable(here); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the end is not seen")
		}
	}
}
