package web

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/await"
)

// pacedServer serves a response of length bytes, and reports how writing it ended.
func pacedServer(t *testing.T, p pace, length int) (address string, ended <-chan error) {
	t.Helper()
	done := make(chan error, 1)
	server := httptest.NewUnstartedServer(p.keep(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write(make([]byte, length))
		done <- err
	})))
	server.Listener = listener{server.Listener.(*net.TCPListener)}
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), done
}

func ask(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	must(t, c.(*net.TCPConn).SetReadBuffer(16<<10))
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return c
}

// F14: the connection of a client that does not read a response, or reads a byte now and then, is cut.
func TestPace_CutsOffSlowReaders(t *testing.T) {
	for name, read := range map[string]func(c net.Conn){
		"that read nothing": func(net.Conn) {},
		"that trickle": func(c net.Conn) {
			for _, err := c.Read(make([]byte, 1)); err == nil; _, err = c.Read(make([]byte, 1)) {
				time.Sleep(10 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, ended := pacedServer(t, pace{64 << 10, 300 * time.Millisecond, time.Minute}, 16<<20)
			c := ask(t, address)
			go read(c)
			select {
			case err := <-ended:
				if err == nil {
					t.Error("the whole response was written")
				}
			case <-time.After(await.Long):
				t.Fatal("the response is still held for a client that does not read")
			}
		})
	}
}

func TestPace_WholeResponseHasTimeLimit(t *testing.T) {
	t.Parallel()
	address, ended := pacedServer(t, pace{64 << 10, await.Long / 2, 300 * time.Millisecond}, 16<<20)
	ask(t, address)
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the whole response was written")
		}
	case <-time.After(await.Long):
		t.Fatal("the response exceeded its time limit")
	}
}

func TestPace_ReadersGetEveryByte(t *testing.T) {
	t.Parallel()
	address, ended := pacedServer(t, pace{64 << 10, await.Long, await.Long}, 9<<20+1)
	response, err := http.Get("http://" + address)
	must(t, err)
	defer func() { _ = response.Body.Close() }()
	if n, err := io.Copy(io.Discard, response.Body); n != 9<<20+1 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A handler that streams a long response can set a later deadline. Otherwise the response ends at the usual deadline.
func TestPace_HandlerSetsLaterEnd(t *testing.T) {
	for name, longer := range map[string]bool{"usual end": false, "later end": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pace{chunk: 64 << 10, within: await.Long, whole: 300 * time.Millisecond}
			server := httptest.NewServer(p.keep(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if longer {
					if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(await.Long)); err != nil {
						t.Error(err)
					}
				}
				for range 10 {
					if _, err := w.Write(make([]byte, 128<<10)); err != nil {
						panic(http.ErrAbortHandler)
					}
					time.Sleep(60 * time.Millisecond)
				}
			})))
			t.Cleanup(server.Close)
			answer, err := http.Get(server.URL)
			must(t, err)
			content, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if whole := err == nil && len(content) == 10*128<<10; whole != longer {
				t.Errorf("%d bytes, %v", len(content), err)
			}
		})
	}
}
