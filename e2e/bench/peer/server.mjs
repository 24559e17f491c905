// node-oidc-provider as the peer in make bench. It gets the same requests as the product: a code with PKCE for a JWT
// access token (ES256, for one resource) and a rotating refresh token; a refresh; the introspection of an opaque access
// token. The browser steps are left out: /bench/mint creates approved codes and one opaque token.
// REDIS_URL names its Redis. It listens on a free port of the loopback interface, prints its address, and ends when
// its input ends.
import { createHash, generateKeyPairSync, randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import { Provider } from 'oidc-provider';
import { RedisAdapter } from './adapter.mjs';

const resource = 'https://api.example.org/v1';
const redirectURI = 'https://app.example.org/callback';
const scope = 'programmes:read:programmes';
const account = '0190a0c0-0000-7000-8000-000000000001';
const secret = randomBytes(32).toString('base64url');
const key = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ format: 'jwk' });

const server = createServer();
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    adapter: RedisAdapter,
    clients: [
      { client_id: 'connector', token_endpoint_auth_method: 'none', redirect_uris: [redirectURI], grant_types: ['authorization_code', 'refresh_token'], response_types: ['code'] },
      { client_id: 'service', client_secret: secret, token_endpoint_auth_method: 'client_secret_basic', redirect_uris: [], grant_types: [], response_types: [] },
    ],
    clientDefaults: { id_token_signed_response_alg: 'ES256' },
    jwks: { keys: [{ ...key, alg: 'ES256', use: 'sig', kid: 'bench' }] },
    cookies: { keys: [randomBytes(32).toString('hex')] },
    scopes: [scope],
    findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub }) }),
    issueRefreshToken: () => true,
    rotateRefreshToken: true,
    features: {
      devInteractions: { enabled: false },
      introspection: { enabled: true, allowedPolicy: () => true },
      resourceIndicators: {
        enabled: true,
        useGrantedResource: () => true,
        getResourceServerInfo: () => ({ scope, audience: resource, accessTokenTTL: 3600, accessTokenFormat: 'jwt', jwt: { sign: { alg: 'ES256' } } }),
      },
    },
    ttl: { AccessToken: 3600, AuthorizationCode: 60, Grant: 30 * 86400, RefreshToken: 30 * 86400 },
  });

  async function grant() {
    const made = new provider.Grant({ accountId: account, clientId: 'connector' });
    made.addResourceScope(resource, scope);
    made.addOIDCScope(scope);
    return made.save();
  }

  async function mint(count) {
    const client = await provider.Client.find('connector');
    const verifier = randomBytes(32).toString('base64url');
    const challenge = createHash('sha256').update(verifier).digest('base64url');
    const code = async () =>
      new provider.AuthorizationCode({
        accountId: account, client, grantId: await grant(), gty: 'authorization_code', redirectUri: redirectURI, scope, resource,
        codeChallenge: challenge, codeChallengeMethod: 'S256',
      }).save();
    const codes = await Promise.all(Array.from({ length: count }, code));
    const opaque = await new provider.AccessToken({ accountId: account, client, grantId: await grant(), gty: 'authorization_code', scope }).save();
    return { codes, verifier, opaque, resource, redirectURI, clientID: 'connector', serviceID: 'service', serviceSecret: secret };
  }

  const answer = provider.callback();
  server.on('request', async (request, response) => {
    const url = new URL(request.url, issuer);
    if (url.pathname !== '/bench/mint') return answer(request, response);
    try {
      response.setHeader('Content-Type', 'application/json');
      response.end(JSON.stringify(await mint(Number(url.searchParams.get('count')))));
    } catch (error) {
      console.error(error);
      response.writeHead(500).end();
    }
  });
  console.log(issuer);
  process.stdin.on('end', () => process.exit()).resume(); // the parent process has ended
});
