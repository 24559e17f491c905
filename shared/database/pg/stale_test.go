package pg

import (
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/await"
)

// pair returns both ends of a connection.
func pair(t *testing.T) (here, there net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
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
	raw, err := here.(syscall.Conn).SyscallConn()
	must(t, err)
	reading := make(chan struct{})
	began := sync.OnceFunc(func() { close(reading) })
	go func() { // Read calls the function with the connection locked for readers, and then waits for data
		_ = raw.Read(func(uintptr) (done bool) { began(); return false })
	}()
	<-reading
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
	await.True(t, "the closed connection is detected", func() bool { return readable(here) })
}
