package web

import (
	"net"
	"net/http"
	"time"
)

// What a caller who reads slowly may hold up.
const (
	// sendBuffer is what the kernel keeps of answers that one connection has not read yet. Left to itself it would be
	// megabytes, which count as memory of this process where it runs in a control group.
	sendBuffer = 256 << 10
	// paceChunk of an answer must be taken within paceTime, or the connection is cut.
	paceChunk = 64 << 10
	paceTime  = 5 * time.Second
)

// A pace is how fast callers must read answers.
type pace struct {
	chunk  int
	within time.Duration // for each chunk
	whole  time.Duration // for the whole answer
}

// keep cuts off a caller who does not read an answer at this pace, so that its bytes are free again.
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

// pacedWriter sets a deadline for each chunk of an answer beyond the first.
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
			_ = w.control.SetWriteDeadline(deadline) // a writer that takes none is no connection
		}
		n, err := w.ResponseWriter.Write(part)
		written += n
		if b = b[len(part):]; err != nil || len(b) == 0 {
			return written, err
		}
	}
}

// Unwrap lets http.ResponseController reach the writer beneath.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// smallBuffers bounds what the kernel keeps for each connection.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBuffer) // or it keeps the kernel's own bound
	}
	return connection, err
}
