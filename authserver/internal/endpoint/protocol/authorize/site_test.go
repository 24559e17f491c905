package authorize_test

import "github.com/almonerhq/almoner/authserver/internal/testing/browsertest"

var shared, own = browsertest.Shared, browsertest.Own
