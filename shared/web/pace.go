package web

import (
	"net"
	"net/http"
	"time"
)

// Limits for callers that read slowly.
const (
	// sendBuffer is the kernel's buffer per connection for unread responses. By default it would be
	// megabytes, which count as memory of this process in a control group.
	sendBuffer = 256 << 10
	// paceChunk bytes of a response must be read within paceTime, or the connection is cut.
	paceChunk = 64 << 10
	paceTime  = 5 * time.Second
)

// A pace is how fast callers must read responses.
type pace struct {
	chunk  int
	within time.Duration // for each chunk
	whole  time.Duration // for the whole response
}

// keep cuts the connection of a caller that does not read a response at this pace, so that its memory is
// freed.
func (p pace) keep(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&pacedWriter{
			ResponseWriter: w,
			control:        http.NewResponseController(w),
			pace:           p,
			end:            time.Now().Add(p.whole),
		}, r)
	})
}

// pacedWriter sets a deadline for each chunk of a response after the first.
type pacedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	pace    pace
	end     time.Time
	sent    int
}

func (w *pacedWriter) Write(b []byte) (written int, err error) {
	for {
		part := b[:min(len(b), w.pace.chunk)]
		if w.sent += len(part); w.sent > w.pace.chunk {
			deadline := time.Now().Add(w.pace.within)
			if deadline.After(w.end) {
				deadline = w.end
			}
			_ = w.control.SetWriteDeadline(deadline) // a writer without deadlines is not a connection
		}
		n, err := w.ResponseWriter.Write(part)
		written += n
		if b = b[len(part):]; err != nil || len(b) == 0 {
			return written, err
		}
	}
}

// SetWriteDeadline implements http.ResponseController's interface. A handler that streams a long response sets the
// deadline for the whole response; the time for each chunk does not change.
func (w *pacedWriter) SetWriteDeadline(end time.Time) error {
	w.end = end
	return w.control.SetWriteDeadline(end)
}

// Unwrap is used by http.ResponseController.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// smallBuffers limits the kernel's send buffer of each connection.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBuffer) // on failure the kernel's default stays
	}
	return connection, err
}
