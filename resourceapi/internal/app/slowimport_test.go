package app

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/await"
)

// The client stops in the middle of the file. The server's own time limit is longer.
func TestImport_SlowUploadTimesOut(t *testing.T) {
	s := newService(t)
	workspaceID, h := s.editor()
	connection, err := net.Dial("tcp", s.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	_ = connection.SetDeadline(time.Now().Add(await.Long))
	_, _ = io.WriteString(
		connection,
		"POST "+listPath+"/imports HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: text/csv\r\n"+
			"Authorization: "+h["Authorization"]+"\r\nX-Tenant-Id: "+workspaceID.String()+"\r\n"+
			"Content-Length: 100\r\n\r\nname\n",
	)
	answer, err := io.ReadAll(connection)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400") ||
		!strings.Contains(string(answer), "in time") {
		t.Errorf("%v %s", err, answer)
	}
}
