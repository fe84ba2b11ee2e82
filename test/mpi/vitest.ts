/** What test files import from vitest, without the processes of vitest around it. */
import { chai, JestAsymmetricMatchers, JestChaiExpect, JestExtend } from "@vitest/expect";

export { afterAll, afterEach, beforeAll, beforeEach, describe, test } from "@vitest/runner";

chai.use(JestExtend);
chai.use(JestChaiExpect);
chai.use(JestAsymmetricMatchers);

/** As vitest's, without snapshots. */
export const expect = chai.expect;
