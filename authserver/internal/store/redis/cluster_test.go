package redis

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/shared/credential"
)

func TestAURLWithFurtherAddressesIsACluster(t *testing.T) {
	for url, want := range map[string]bool{
		"redis://:secret@127.0.0.1:6379/0":                                            false,
		"redis://:secret@127.0.0.1:6379?addr=127.0.0.1:6380":                          true,
		"rediss://almoner:secret@one.example:6379?addr=two:6379&addr=three.example:1": true,
	} {
		client, err := Connect(credential.Secret(url))
		if err != nil {
			t.Fatal(err)
		}
		if _, got := client.(*goredis.ClusterClient); got != want {
			t.Errorf("a cluster: %t, want %t", got, want)
		}
		_ = client.Close()
	}
	for _, url := range []string{"redis://:secret@%zz", "redis://:secret@127.0.0.1:6379?addr=two:6379&nonsense=secret", "http://:secret@x?addr=y:1"} {
		if _, err := Connect(credential.Secret(url)); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v", err)
		}
	}
}

// The last try could not connect: that says nothing about the one before, whose answer was lost.
func TestAWitnessRemembersTheTryThatMayHaveArrived(t *testing.T) {
	ctx, doubt := witnessed(t.Context())
	dial := &net.OpError{Op: "dial", Err: io.EOF}
	try := func(err error) {
		_ = witness{}.ProcessHook(func(context.Context, goredis.Cmder) error { return err })(ctx, goredis.NewCmd(ctx, "ping"))
	}
	try(nil)
	try(dial)
	if doubt.Load() {
		t.Error("doubt although nothing was sent")
	}
	try(io.EOF)
	try(dial)
	if !doubt.Load() {
		t.Error("no doubt although an answer was lost")
	}
}
